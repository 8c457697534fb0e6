// Writes src/types.gen.ts from docs/openapi.json, and the codes of problems from docs/problems.md:
//
//   node scripts/generate.mjs OPENAPI.json PROBLEMS.md [OUTPUT]
//
// It takes what the document uses of OpenAPI 3.1, and stops at anything else.
import { readFileSync, writeFileSync } from "node:fs";

const home = new URL("../", import.meta.url);
const [openapi = new URL("../../docs/openapi.json", home), problems = new URL("../../docs/problems.md", home), output = new URL("src/types.gen.ts", home)] =
  process.argv.slice(2);
const document = JSON.parse(readFileSync(openapi, "utf8"));

// The integers that may be beyond ±(2^53 − 1). All others stay within it by contract: amounts, counts, numbers of events.
const wide = new Set([
  "CurrencyIntegrity.available", "CurrencyIntegrity.deposits", "CurrencyIntegrity.difference", "CurrencyIntegrity.held", "CurrencyIntegrity.withdrawals",
  "Integrity.difference", "Multidraw.results", "MultidrawProofDocument.results", "Range.max", "Range.min", "RangeRequest.max", "RangeRequest.min",
  "WeightedPrize.value", "WeightedPrize.weight",
]);
const seen = new Set();

function comment(text, indent) {
  if (!text) return "";
  const lines = text.replaceAll("*/", "*\\/").split("\n").filter((line) => line !== "");
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join("")}${indent} */\n`;
}

/** The type of a schema; at is where it is, such as Account.held. */
function typeOf(schema, at) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, at)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, at)).join(" | ");
  switch (schema.type) {
    case undefined:
      return "unknown";
    case "null":
    case "string":
    case "boolean":
    case "number":
      return schema.type;
    case "integer":
      if (!wide.has(at)) return "number";
      seen.add(at);
      return "number | bigint";
    case "array": {
      const items = typeOf(schema.items, at);
      return /^\w+$/.test(items) ? `${items}[]` : `Array<${items}>`;
    }
    case "object":
      if (schema.properties) return `{\n${members(schema, at, "  ")}}`;
      if (schema.additionalProperties === false) return "Record<string, never>";
      return `Record<string, ${typeOf(schema.additionalProperties ?? {}, at)}>`;
    default:
      throw new Error(`${at}: a schema of type ${schema.type}`);
  }
}

function members(schema, at, indent) {
  return Object.entries(schema.properties)
    .map(([name, member]) => {
      const optional = schema.required?.includes(name) ? "" : "?";
      return `${comment(member.description, indent)}${indent}${name}${optional}: ${typeOf(member, `${at}.${name}`)};\n`;
    })
    .join("");
}

function declaration([name, schema]) {
  const lead = comment(schema.description, "");
  if (schema.type === "object" && schema.properties) return `${lead}export interface ${name} {\n${members(schema, name, "  ")}}\n`;
  return `${lead}export type ${name} = ${typeOf(schema, name)};\n`;
}

const noFields = "#/components/schemas/NoFields"; // An absent body is sent as {}.

/** What a route takes and answers, or undefined where it answers something else than JSON. */
function route(operation, at) {
  const answers = new Set();
  for (const [status, response] of Object.entries(operation.responses)) {
    if (!/^[123]/.test(status)) continue;
    const content = Object.entries(response.content ?? {});
    if (status === "101" || content.some(([type]) => type !== "application/json")) return undefined;
    answers.add(content.length === 0 ? "undefined" : typeOf(content[0][1].schema, at));
  }
  const parts = [];
  const of = (place) => (operation.parameters ?? []).filter((parameter) => parameter.in === place);
  const ids = of("path");
  if (ids.length > 0) parts.push(`path: { ${ids.map((id) => `${id.name}: string`).join("; ")} }`);
  const query = of("query").map((q) => `${q.name}${q.required ? "" : "?"}: ${typeOf(q.schema, at)}`);
  if (query.length > 0) parts.push(`query?: { ${query.join("; ")} }`);
  const body = operation.requestBody?.content["application/json"].schema;
  if (body && body.$ref !== noFields) parts.push(`body${operation.requestBody.required ? "" : "?"}: ${typeOf(body, at)}`);
  parts.push(`answer: ${[...answers].join(" | ")}`);
  return `${comment(operation.summary, "    ")}    ${JSON.stringify(at)}: { ${parts.join("; ")} };\n`;
}

const routes = { GET: "", POST: "", DELETE: "" };
for (const [path, item] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(item)) {
    if (!(method.toUpperCase() in routes)) throw new Error(`${path}: ${method}`);
    routes[method.toUpperCase()] += route(operation, path) ?? "";
  }
}
const codes = readFileSync(problems, "utf8").match(/(?<=^## )[a-z_]+$/gm);

const text = `// Made by scripts/generate.mjs from docs/openapi.json and docs/problems.md. Do not edit.

${Object.entries(document.components.schemas).map(declaration).join("\n")}
/** The stable names of all problems. A newer server may have more. */
export type ProblemCode =
${codes.map((code) => `  | ${JSON.stringify(code)}`).join("\n")};

/** What each route that speaks JSON takes and answers. */
export interface Routes {
${Object.entries(routes).map(([method, all]) => `  ${method}: {\n${all}  };\n`).join("")}}
`;
for (const at of wide) {
  if (!seen.has(at)) throw new Error(`there is no integer ${at} any more`);
}
writeFileSync(output, text);
