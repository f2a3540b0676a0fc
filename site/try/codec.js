// SPDX-License-Identifier: BSD-3-Clause
// The codec, compiled to WebAssembly (codec.c), on a tensor of arrays.js.
"use strict";

const PICI_FORMATS = {dense: 0, bitmap: 1, coo: 2, hybrid: 3, packed: 4};
const PICI_CONTAINER_NAMES = ["offsets12", "offsets8", "bitvector", "raw", "empty"];
const PICI_TILE = 4096;

function wasmModule(base64) {
    return new WebAssembly.Module(Uint8Array.from(atob(base64), c => c.charCodeAt(0)));
}

// A new instance each time: the memory of one only grows.
function instance(module) {
    return new WebAssembly.Instance(module, {}).exports;
}

function words(codec, status) {
    const bytes = new Uint8Array(codec.memory.buffer, codec.status_words(status));
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}

function allocated(codec, bytes) {
    const at = codec.room(bytes) >>> 0;
    if (at === 0)
        throw new Error("the browser gave no memory");
    return at;
}

// {blocks: {format: bytes}, containers: [{name, tiles, nonzeros, positions, values}], other, first: Uint8Array}
// of the elements of a tensor.
function measured(module, of) {
    const codec = instance(module);
    const dtype = PICI_DTYPES[of.dtype];
    const size = of.bytes.length;
    const source = allocated(codec, Math.max(size, 1));
    const again = allocated(codec, Math.max(size, 1));
    const capacity = Math.max(...Object.values(PICI_FORMATS).map(f => codec.bound(f, dtype, of.count) >>> 0));
    const block = allocated(codec, capacity);
    new Uint8Array(codec.memory.buffer).set(of.bytes, source);
    const found = {blocks: {}, containers: [], other: 0, first: null, best: "dense"};
    const encode = format => {
        const bytes = codec.compress(block, capacity, source, of.count, dtype, PICI_FORMATS[format], 0);
        if (bytes < 0)
            throw new Error(`${format}: ${words(codec, bytes)}`);
        const status = codec.differs(again, block, bytes, source, of.count, size);
        if (status !== 0)
            throw new Error(`${format}: ${status < 0 ? words(codec, status) : "other elements come back"}`);
        return bytes;
    };
    for (const format of Object.keys(PICI_FORMATS)) {
        if (format === "packed" && dtype > PICI_DTYPES.f8e5m2)
            continue;
        found.blocks[format] = encode(format);
        if (found.blocks[format] < found.blocks[found.best])
            found.best = format;
    }
    const bytes = encode("hybrid");
    found.first = new Uint8Array(codec.memory.buffer, block, Math.min(bytes, 256)).slice();
    if (of.count > 0) {
        const rows = allocated(codec, 8 * 5 * PICI_CONTAINER_NAMES.length);
        const status = codec.breakdown(rows, block, bytes);
        if (status !== 0)
            throw new Error(words(codec, status));
        const numbers = new Float64Array(codec.memory.buffer, rows, 5 * PICI_CONTAINER_NAMES.length);
        found.other = numbers[4];
        PICI_CONTAINER_NAMES.forEach((name, i) => {
            const [tiles, nonzeros, positions, values] = numbers.subarray(5 * i, 5 * i + 4);
            found.containers.push({name, tiles, nonzeros, positions, values});
        });
    }
    return found;
}

// Nonzeros of each tile.
function tileCounts(of) {
    const width = PICI_WIDTHS[of.dtype];
    const counts = new Uint32Array(Math.ceil(of.count / PICI_TILE));
    for (let i = 0, at = 0; i < of.count; i++) {
        let any = 0;
        for (let b = 0; b < width; b++)
            any |= of.bytes[at++];
        if (any)
            counts[Math.floor(i / PICI_TILE)]++;
    }
    return counts;
}
