// Plain questions to the demo model: Anthropic's SDK for Node, and `ai` with @ai-sdk/openai-compatible.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const url = process.argv[2];
const prompt = "What is the capital of France?";
const system = "Answer in one sentence.";
const seen = {};

const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const asked = { model: "demo", max_tokens: 24, system, messages: [{ role: "user", content: prompt }], top_k: 1 };
const message = await client.messages.create(asked);
const stream = client.messages.stream(asked);
seen.anthropic = { whole: message.content[0].text, streamed: await stream.finalText(), reason: message.stop_reason };

const turret = createOpenAICompatible({ name: "turret", baseURL: `${url}/v1` });
const question = { model: turret("demo"), system, prompt, temperature: 0, maxOutputTokens: 24, maxRetries: 0 };
const whole = await generateText(question);
let streamed = "";
for await (const text of streamText(question).textStream) streamed += text;
seen.ai = { whole: whole.text, streamed, reason: whole.finishReason };
console.log(JSON.stringify(seen));
