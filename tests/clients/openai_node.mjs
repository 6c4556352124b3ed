// The official Node SDK against one server: what it reads of each kind of answer, as one JSON object on stdout.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [
  { role: "developer", content: "Answer in one sentence." },
  { role: "user", content: "What is the capital of France?" },
];
const asked = { model: "demo", messages, temperature: 0, max_completion_tokens: 24 };
const seen = {};

seen.models = (await client.models.list()).data.map((card) => card.id);

const whole = await client.chat.completions.create({ ...asked, logprobs: true, top_logprobs: 2 });
seen.content = whole.choices[0].message.content;
seen.usage = whole.usage;
seen.logprobs = whole.choices[0].logprobs.content.map((entry) => entry.token).join("");
seen.alternatives = whole.choices[0].logprobs.content.map((entry) => entry.top_logprobs.length);

let streamed = "";
let usage = null;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...asked, ...options })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
seen.streamed = streamed;
seen.streamUsage = usage;

const runner = client.chat.completions.stream(asked);
seen.finalContent = await runner.finalContent();

const text = { model: "demo", prompt: "The capital of France is", temperature: 0, max_tokens: 4 };
seen.completion = (await client.completions.create(text)).choices[0].text;
let pieces = "";
for await (const chunk of await client.completions.create({ ...text, stream: true })) pieces += chunk.choices[0].text;
seen.completionStreamed = pieces;

try {
  await client.completions.create({ ...text, max_tokens: 1e9 });
} catch (error) {
  seen.error = { kind: error.constructor.name, status: error.status, param: error.param, message: error.message };
}

const controller = new AbortController();
const long = await client.completions.create({ ...text, max_tokens: 400, stream: true }, { signal: controller.signal });
let chunks = 0;
for await (const chunk of long) if (++chunks === 3) controller.abort();
seen.aborted = chunks;

console.log(JSON.stringify(seen));
