from weft.model.text import table


def test_columns_are_aligned_and_lines_end_with_their_words():
    assert table(("NAME", "N"), [("a", "1"), ("longer", "")]) == "NAME    N\na       1\nlonger\n"
