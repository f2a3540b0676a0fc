// SPDX-License-Identifier: BSD-3-Clause
// The page: an example or a dropped file, its tiles, the sizes of its blocks, and the first bytes.
"use strict";

(() => {
    const MOST = 64 << 20; // bytes of a tensor that are looked at
    const EXAMPLES = {
        "gradient, 99% zeros": {zeros: 0.99, clustered: false},
        "gradient, 90% zeros": {zeros: 0.9, clustered: false},
        "embedding, few rows": {zeros: 0.97, clustered: true},
        "weights, no zeros": {zeros: 0, clustered: false},
    };
    const root = document.getElementById("pici-try");

    function element(name, attributes, ...children) {
        const made = document.createElement(name);
        for (const [key, value] of Object.entries(attributes))
            made.setAttribute(key, value);
        made.append(...children);
        return made;
    }

    function table(head, rows) {
        const line = (cell, values) => element("tr", {}, ...values.map(v => element(cell, {}, String(v))));
        const body = element("tbody", {}, ...rows.map(r => line("td", r)));
        const first = element("thead", {}, line("th", head));
        return element("div", {class: "pici-scroll"}, element("table", {}, first, body));
    }

    const grouped = n => n.toLocaleString("en-US");
    const percent = (part, whole) => whole === 0 ? "-" : (100 * part / whole).toFixed(part < whole / 100 ? 2 : 1) + "%";

    // The same numbers in each run, normally distributed values.
    function example(name) {
        const {zeros, clustered} = EXAMPLES[name];
        const count = 262144, row = 512, values = new Float32Array(count);
        let state = 1;
        const uniform = () => {
            state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
            const mixed = Math.imul(state ^ state >>> 13, 0x297a2d39);
            return ((mixed ^ mixed >>> 16) >>> 0) / 4294967296;
        };
        let kept = true;
        for (let i = 0; i < count; i++) {
            if (!clustered || i % row === 0)
                kept = uniform() >= zeros;
            if (kept)
                values[i] = 0.02 * Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
        }
        return {name, dtype: "f32", shape: [row, row], count, bytes: new Uint8Array(values.buffer)};
    }

    // One square for each tile, darker with more nonzeros; several tiles a square if there are many.
    function picture(counts) {
        const side = Math.ceil(Math.sqrt(Math.min(counts.length, 4096))) || 1;
        const each = Math.ceil(counts.length / (side * side)) || 1;
        const canvas = element("canvas", {width: side, height: side, class: "pici-tiles", role: "img"});
        canvas.setAttribute("aria-label", `${counts.length} tiles, darker with more nonzeros`);
        const drawing = canvas.getContext("2d");
        for (let i = 0; i * each < counts.length; i++) {
            let sum = 0, tiles = 0;
            for (let k = i * each; k < Math.min(counts.length, (i + 1) * each); k++, tiles++)
                sum += counts[k];
            const share = sum / (tiles * PICI_TILE);
            drawing.fillStyle = share === 0 ? "#f2f2f2" : `hsl(231 48% ${85 - 60 * Math.sqrt(share)}%)`;
            drawing.fillRect(i % side, Math.floor(i / side), 1, 1);
        }
        return canvas;
    }

    function advice(of, found) {
        const share = found.blocks[found.best] / of.bytes.length;
        const size = percent(found.blocks[found.best], of.bytes.length);
        if (of.count === 0)
            return "The tensor is empty.";
        if (share > 0.97)
            return "pici gains nothing here: there are few zeros, and the exponents do not pack.";
        return `The ${found.best} block has ${size} of the bytes.` + (found.best === "packed" ?
            " Packed blocks are an option: pack= in Python, picitool's default."
            : " PICI_AUTO takes this format.");
    }

    function hex(bytes) {
        const lines = [];
        for (let i = 0; i < bytes.length; i += 16) {
            const part = [...bytes.subarray(i, i + 16)];
            const letters = part.map(b => b > 31 && b < 127 ? String.fromCharCode(b) : ".").join("");
            const numbers = part.map(b => b.toString(16).padStart(2, "0")).join(" ").padEnd(47);
            lines.push(`${i.toString(16).padStart(4, "0")}  ${numbers}  ${letters}`);
        }
        return lines.join("\n");
    }

    function shown(whole) {
        const width = PICI_WIDTHS[whole.dtype];
        const count = Math.min(whole.count, MOST / width);
        const of = {...whole, count, bytes: whole.bytes.subarray(0, count * width)};
        const module = shown.module || (shown.module = wasmModule(PICI_WASM));
        const found = measured(module, of), counts = tileCounts(of);
        const nonzeros = counts.reduce((a, b) => a + b, 0);
        const about = `${of.name}: ${grouped(of.count)} elements of ${of.dtype}, [${whole.shape.join(", ")}], ` +
            `${percent(of.count - nonzeros, of.count)} zeros` +
            (count < whole.count ? `; the first ${grouped(count)} of ${grouped(whole.count)}` : "");
        const sizes = Object.entries(found.blocks).map(([name, bytes]) =>
            [name + (name === found.best ? " (shortest)" : ""), grouped(bytes), percent(bytes, of.bytes.length)]);
        const containers = found.containers.filter(c => c.tiles > 0).map(c =>
            [c.name, grouped(c.tiles), grouped(c.nonzeros), grouped(c.positions), grouped(c.values)]);
        containers.push(["header, directory", "", "", grouped(found.other), ""]);
        return [
            element("p", {id: "pici-about"}, about),
            element("p", {id: "pici-advice"}, element("strong", {}, advice(of, found))),
            element("div", {class: "pici-columns"},
                element("div", {}, element("h3", {}, "Blocks"), table(["format", "bytes", "of dense"], sizes)),
                element("div", {},
                    element("h3", {}, `${grouped(counts.length)} tiles of ${grouped(PICI_TILE)} elements`),
                    picture(counts))),
            element("h3", {}, "The hybrid block, by container"),
            table(["container", "tiles", "nonzeros", "bytes of positions", "bytes of values"], containers),
            element("h3", {}, "Its first bytes"),
            element("pre", {id: "pici-bytes"}, element("code", {}, hex(found.first))),
        ];
    }

    const choice = element("select", {id: "pici-example", "aria-label": "Example"},
        ...Object.keys(EXAMPLES).map(name => element("option", {value: name}, name)));
    const file = element("input", {type: "file", id: "pici-file", accept: ".npy,.safetensors", "aria-label": "File"});
    const tensors = element("select", {id: "pici-tensor", hidden: "", "aria-label": "Tensor"});
    const result = element("div", {id: "pici-result"});
    let loaded = [];

    function show(of) {
        try {
            result.replaceChildren(...shown(of()));
        } catch (e) {
            result.replaceChildren(element("p", {class: "pici-error", role: "alert"}, e.message));
        }
    }

    async function take(taken) {
        if (!taken)
            return;
        tensors.hidden = true;
        let bytes;
        try {
            bytes = new Uint8Array(await taken.arrayBuffer());
        } catch (e) {
            show(() => { throw new Error(`${taken.name}: the browser cannot read it: ${e.message}`); });
            return;
        }
        show(() => {
            loaded = tensorsOf(taken.name, bytes);
            if (loaded.length === 0)
                throw new Error(`${taken.name}: no tensors`);
            tensors.replaceChildren(...loaded.map((t, i) => element("option", {value: i}, `${t.name} [${t.shape}]`)));
            tensors.hidden = loaded.length === 1;
            return loaded[0];
        });
    }

    const area = element("div", {class: "pici-drop"}, element("label", {}, "Example: ", choice),
        element("label", {}, "or a file: ", file), element("span", {}, "or drop it here"), tensors);
    choice.addEventListener("change", () => {
        tensors.hidden = true;
        show(() => example(choice.value));
    });
    file.addEventListener("change", () => take(file.files[0]));
    tensors.addEventListener("change", () => show(() => loaded[Number(tensors.value)]));
    area.addEventListener("dragover", event => event.preventDefault());
    area.addEventListener("drop", event => {
        event.preventDefault();
        take(event.dataTransfer.files[0]);
    });
    root.replaceChildren(area, result);
    if (PICI_WASM)
        show(() => example(choice.value));
    else
        show(() => { throw new Error("This site was made without the codec: there was no wasm-ld."); });
})();
