// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: GPL-2.0-only

#include "json.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace radio
{

class Json::Parser
{
  public:
    explicit Parser(const std::string& text)
        : m_at(text.c_str()),
          m_end(m_at + text.size())
    {
    }

    Json Whole()
    {
        Json value = Value();
        Space();
        if (m_at != m_end)
        {
            throw std::runtime_error("settings: not JSON");
        }
        return value;
    }

  private:
    void Space()
    {
        while (m_at != m_end && std::isspace(static_cast<unsigned char>(*m_at)))
        {
            ++m_at;
        }
    }

    bool Take(char c)
    {
        Space();
        const bool is = m_at != m_end && *m_at == c;
        m_at += is;
        return is;
    }

    bool Word(const char* word)
    {
        const std::size_t size = std::strlen(word);
        const bool is = static_cast<std::size_t>(m_end - m_at) >= size &&
                        std::strncmp(m_at, word, size) == 0;
        m_at += is ? size : 0;
        return is;
    }

    void Need(char c)
    {
        if (!Take(c))
        {
            throw std::runtime_error(std::string("settings: JSON lacks ") + c);
        }
    }

    std::string Text()
    {
        std::string text;
        for (Need('"'); m_at != m_end && *m_at != '"'; ++m_at)
        {
            // What this program uses has no escapes; others are kept as they are.
            if (*m_at == '\\' && m_at + 1 != m_end)
            {
                text += *m_at++;
            }
            text += *m_at;
        }
        Need('"');
        return text;
    }

    Json Value()
    {
        Json value;
        Space();
        if (m_at == m_end)
        {
            throw std::runtime_error("settings: JSON ends early");
        }
        if (*m_at == '"')
        {
            value.m_kind = Kind::Text;
            value.m_text = Text();
        }
        else if (Take('['))
        {
            value.m_kind = Kind::List;
            while (!Take(']'))
            {
                value.m_list.push_back(Value());
                if (!Take(','))
                {
                    Need(']');
                    break;
                }
            }
        }
        else if (Take('{'))
        {
            value.m_kind = Kind::Object;
            while (!Take('}'))
            {
                Space();
                const std::string name = Text();
                Need(':');
                value.m_members[name] = Value();
                if (!Take(','))
                {
                    Need('}');
                    break;
                }
            }
        }
        else if (Word("true") || Word("false"))
        {
            value.m_kind = Kind::Bool;
            value.m_number = m_at[-2] == 'u';
        }
        else if (!Word("null"))
        {
            char* after = nullptr;
            value.m_kind = Kind::Number;
            value.m_number = std::strtod(m_at, &after);
            if (after == m_at)
            {
                throw std::runtime_error("settings: not JSON");
            }
            m_at = after;
        }
        return value;
    }

    const char* m_at;
    const char* m_end;
};

Json
Json::Parse(const std::string& text)
{
    return Parser(text).Whole();
}

const Json&
Json::operator[](const std::string& name) const
{
    Need(Kind::Object);
    const auto found = m_members.find(name);
    if (found == m_members.end())
    {
        throw std::runtime_error("settings: " + name + " is missing");
    }
    return found->second;
}

void
Json::Need(Kind kind) const
{
    if (m_kind != kind)
    {
        throw std::runtime_error("settings: a value of another kind is needed");
    }
}

double
Json::Number() const
{
    Need(Kind::Number);
    return m_number;
}

bool
Json::Bool() const
{
    Need(Kind::Bool);
    return m_number != 0;
}

const std::string&
Json::Text() const
{
    Need(Kind::Text);
    return m_text;
}

std::vector<double>
Json::Numbers() const
{
    Need(Kind::List);
    std::vector<double> numbers;
    for (const Json& each : m_list)
    {
        numbers.push_back(each.Number());
    }
    return numbers;
}

const std::vector<Json>&
Json::Items() const
{
    Need(Kind::List);
    return m_list;
}

bool
Json::IsNull() const
{
    return m_kind == Kind::Null;
}

std::string
Quoted(const std::string& text)
{
    std::string quoted = "\"";
    for (const char c : text)
    {
        if (c == '"' || c == '\\')
        {
            quoted += '\\';
        }
        quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return quoted + '"';
}

} // namespace radio
