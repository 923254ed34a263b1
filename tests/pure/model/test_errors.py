"""What an error says."""

from weft.model.errors import ConfigError, Problem

ONE = Problem(code="CONF-002", where="Network", seen="missing", expected="an IPv4 network", hint="See the page.")
OTHER = Problem(code="CONF-002", where="SubnetLen", seen="31")


def test_all_problems_of_an_input_a_line_each():
    error = ConfigError(ONE, OTHER)
    assert error.problems == (ONE, OTHER)
    assert str(error) == "CONF-002 Network: missing; expected an IPv4 network. See the page.\nCONF-002 SubnetLen: 31"


def test_a_problem_that_ends_like_a_sentence_gets_no_second_full_stop():
    assert str(Problem(code="X-001", where="a", seen="b?", hint="Do c.")) == "X-001 a: b? Do c."
