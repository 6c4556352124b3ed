// Tool loops with the official OpenAI SDK for Node, on chat completions and on the Responses API.
import OpenAI from "openai";
import { about, forecast, schema } from "./weather.mjs";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const tool = { type: "function", function: { name: "get_weather", description: about, parameters: schema } };
const chat = { model: "actor", tools: [tool] };
const seen = {};

async function chatLoop(task, stream) {
  const messages = [{ role: "user", content: task }];
  const ask = async () => {
    if (stream) return client.chat.completions.stream({ ...chat, messages }).finalMessage();
    return (await client.chat.completions.create({ ...chat, messages })).choices[0].message;
  };
  const first = await ask();
  messages.push(first);
  for (const call of first.tool_calls)
    messages.push({
      role: "tool",
      tool_call_id: call.id,
      content: forecast(JSON.parse(call.function.arguments)),
    });
  return { calls: first.tool_calls.map((call) => JSON.parse(call.function.arguments)), end: (await ask()).content };
}

async function runTools(stream) {
  const own = { ...tool.function, function: forecast, parse: JSON.parse };
  const messages = [{ role: "user", content: "ASK-WEATHER" }];
  const tools = [{ type: "function", function: own }];
  return client.chat.completions.runTools({ model: "actor", messages, tools, stream }).finalContent();
}

async function respond(stream) {
  const tools = [{ type: "function", name: "get_weather", description: about, parameters: schema, strict: false }];
  const ask = async (body) => {
    if (stream) return client.responses.stream({ model: "actor", tools, ...body }).finalResponse();
    return client.responses.create({ model: "actor", tools, ...body });
  };
  const first = await ask({ input: "ASK-BOTH" });
  const results = first.output
    .filter((item) => item.type === "function_call")
    .map((call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: forecast(JSON.parse(call.arguments)),
    }));
  const last = await ask({ previous_response_id: first.id, input: results });
  const kept = await client.responses.retrieve(last.id);
  return { results: results.length, end: last.output_text, kept: kept.output_text };
}

for (const stream of [false, true]) {
  const mode = stream ? "streamed" : "whole";
  seen[mode] = {
    one: await chatLoop("ASK-WEATHER", stream),
    both: await chatLoop("ASK-BOTH", stream),
    run: await runTools(stream),
    responses: await respond(stream),
  };
}
console.log(JSON.stringify(seen));
