// Tool loops with the official Anthropic SDK for Node.
import Anthropic from "@anthropic-ai/sdk";
import { about, forecast, schema } from "./weather.mjs";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const tools = [{ name: "get_weather", description: about, input_schema: schema }];
const asked = { model: "actor", max_tokens: 500, tools, thinking: { type: "adaptive" } };
const seen = {};

async function loop(task, stream) {
  const messages = [{ role: "user", content: task }];
  const ask = async () => {
    if (stream) return client.messages.stream({ ...asked, messages }).finalMessage();
    return client.messages.create({ ...asked, messages });
  };
  const first = await ask();
  const results = first.content
    .filter((block) => block.type === "tool_use")
    .map((use) => ({ type: "tool_result", tool_use_id: use.id, content: forecast(use.input) }));
  messages.push({ role: "assistant", content: first.content }, { role: "user", content: results });
  const last = await ask();
  return {
    kinds: first.content.map((block) => block.type),
    reasons: [first.stop_reason, last.stop_reason],
    end: last.content.at(-1).text,
  };
}

for (const stream of [false, true])
  seen[stream ? "streamed" : "whole"] = {
    one: await loop("ASK-WEATHER", stream),
    both: await loop("ASK-BOTH", stream),
  };
const question = [{ role: "user", content: "Hello" }];
seen.counted = (await client.messages.countTokens({ model: "actor", messages: question })).input_tokens;
const said = await client.messages.create({ model: "actor", max_tokens: 9, messages: question });
seen.used = said.usage.input_tokens + said.usage.cache_read_input_tokens;
console.log(JSON.stringify(seen));
