# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Words that somebody got wrong, and those that he may have meant."""

from testbed.core.words import did_you_mean, not_one_of


def test_a_word_that_resembles_another_is_asked_about() -> None:
    assert did_you_mean("spilt", ["split", "seed"]) == "; did you mean 'split'?"
    assert did_you_mean("nothing", ["split", "seed"]) == ""
    assert did_you_mean("uav9", ["uav1", "uav10"]) == ""  # another UAV is no correction
    assert did_you_mean("tau2-hta", ["tau2-hat", "tau3-hat"]) == "; did you mean 'tau2-hat'?"


def test_short_lists_are_named_whole_and_long_ones_are_not() -> None:
    short = [f"a{n}" for n in range(9)]
    assert not_one_of("zz", short) == f"'zz' is not one of {', '.join(short)}"
    many = [f"swin_{n}" for n in range(100)] + ["swin_large"]
    said = not_one_of("swin_larg", many)
    assert said.startswith("'swin_larg' is not one of the 101 known names, such as swin_large")
    assert len(said) < 120
