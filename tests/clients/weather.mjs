// The tool that clients are given, and what it returns.
export const schema = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
export const about = "Weather of a city.";
export const forecast = ({ city, days }) => `rain in ${city} for ${days} days`;
