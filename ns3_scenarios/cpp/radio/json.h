// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#ifndef RADIO_JSON_H
#define RADIO_JSON_H

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace radio
{

/// A value of JSON: what this program is given, which Python's json module has written.
class Json
{
  public:
    /// Parse a whole text; throws std::runtime_error if it is not JSON.
    static Json Parse(const std::string& text);

    /// A member of an object; throws std::runtime_error if it is missing.
    const Json& operator[](const std::string& name) const;

    double Number() const;
    bool Bool() const;
    const std::string& Text() const;
    std::vector<double> Numbers() const;
    const std::vector<Json>& Items() const;
    bool IsNull() const;

  private:
    enum class Kind
    {
        Null,
        Bool,
        Number,
        Text,
        List,
        Object,
    };

    class Parser;

    void Need(Kind kind) const;

    Kind m_kind{Kind::Null};
    double m_number{0};
    std::string m_text;
    std::vector<Json> m_list;
    std::map<std::string, Json> m_members;
};

/// A text as a JSON string, with its quotation marks.
std::string Quoted(const std::string& text);

} // namespace radio

#endif
