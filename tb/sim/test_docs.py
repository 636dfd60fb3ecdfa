"""The generated pages in docs/ are those that the tables give today."""

from sim import docs


def test_generated_pages_are_up_to_date():
    assert docs.write_docs(check=True) == [], "run make docs"


def test_pages_cover_the_tables():
    page = docs.isa_page()
    for word in ("MATMUL", "wait_sem", "ILLEGAL_FIELD", "stride3", "MAX"):
        assert word in page
    assert "CORE1_ERR_CODE" in docs.registers_page()
    assert docs.presets_page().count("| `") == 4
