"""instructor: answers as pydantic models."""

from __future__ import annotations

import instructor
import openai
import pytest
from pydantic import BaseModel


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


@pytest.mark.parametrize("mode", [instructor.Mode.JSON, instructor.Mode.MD_JSON, instructor.Mode.JSON_SCHEMA])
def test_a_model_out_of_text(scripted, mode):
    with openai.OpenAI(base_url=f"{scripted}/v1", api_key="none", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=mode)
        asked = {"model": "actor", "messages": [{"role": "user", "content": "ASK-PERSON"}], "max_retries": 0}
        whole = client.chat.completions.create(response_model=Person, **asked)
        *_, last = client.chat.completions.create_partial(response_model=Person, **asked)
        for found in (whole, last):
            assert (found.name, found.age) == ('Ada "Łódź" L.', 36)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_the_demo_model_fills_a_model_in(demo, mode):
    with openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=mode)
        found = client.chat.completions.create(
            model="demo", response_model=Person, max_retries=0, temperature=0, max_tokens=120,
            messages=[{"role": "user", "content": "Ada is 36 years old."}],
        )  # fmt: skip
        assert found.name and isinstance(found.age, int)
