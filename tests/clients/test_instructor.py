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
