// The `ai` package on @ai-sdk/openai-compatible: text, reasoning, and a loop of tools that it runs itself.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { about, forecast } from "./weather.mjs";

const turret = createOpenAICompatible({ name: "turret", baseURL: `${process.argv[2]}/v1`, includeUsage: true });
const get_weather = tool({
  description: about,
  inputSchema: z.object({ city: z.string(), days: z.number().int() }),
  execute: async (input) => forecast(input),
});
const asked = { model: turret("actor"), tools: { get_weather }, stopWhen: stepCountIs(4), maxRetries: 0 };
const seen = {};

for (const task of ["ASK-WEATHER", "ASK-BOTH", "ASK-THOUGHT"]) {
  const whole = await generateText({ ...asked, prompt: task });
  const streamed = streamText({ ...asked, prompt: task, onError: ({ error }) => { throw error; } });
  const kinds = new Set();
  for await (const part of streamed.fullStream) kinds.add(part.type);
  seen[task] = {
    whole: { text: whole.text, steps: whole.steps.length, usage: whole.usage.outputTokens > 0 },
    streamed: { text: await streamed.text, steps: (await streamed.steps).length, usage: (await streamed.usage).outputTokens > 0 },
    thought: [whole.steps[0].reasoningText, (await streamed.steps)[0].reasoningText],
    calls: whole.steps[0].toolCalls.map((call) => call.input),
    kinds: [...kinds],
  };
}
console.log(JSON.stringify(seen));
