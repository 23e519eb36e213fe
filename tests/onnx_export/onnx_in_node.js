// Runs the graphs of an exported folder in onnxruntime-web: node onnx_in_node.js FOLDER SOURCE TOKENS, the last two in JSON;
// prints the logits of a step for each of the tokens, of one row, and the attention.
const { readFileSync } = require("fs");
const { createRequire } = require("module");
const ort = createRequire(process.cwd() + "/")("onnxruntime-web");

async function main(folder, source, tokens) {
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
  const [encoder, step] = await Promise.all(
    ["encoder", "step"].map((name) => ort.InferenceSession.create(readFileSync(`${folder}/${name}.onnx`))),
  );
  const integers = (values, shape) => new ort.Tensor("int64", BigInt64Array.from(values.map(BigInt)), shape);
  let values = await encoder.run({ source: integers(source, [1, source.length]) });
  const found = [];
  for (const token of tokens) {
    const results = await step.run({ ...values, tokens: integers([token], [1]) });
    found.push({ logits: [...results.logits.data], attention: [...results.attention.data] });
    const entries = Object.entries(values);
    values = Object.fromEntries(entries.map(([name, value]) => [name, results[`next_${name}`] ?? value]));
  }
  console.log(JSON.stringify(found));
}

main(process.argv[2], JSON.parse(process.argv[3]), JSON.parse(process.argv[4])).catch((error) => {
  console.error(error);
  process.exit(1);
});
