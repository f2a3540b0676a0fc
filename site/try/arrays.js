// SPDX-License-Identifier: BSD-3-Clause
// Tensors of .npy and .safetensors files: {name, dtype, shape, count, bytes}. What is malformed throws a TypeError.
"use strict";

const PICI_DTYPES = {f32: 1, f64: 2, f16: 3, bf16: 4, f8e4m3: 5, f8e5m2: 6, i8: 7, u8: 8, i16: 9, u16: 10, i32: 11,
    u32: 12, i64: 13, u64: 14};
const PICI_WIDTHS = {f32: 4, f64: 8, f16: 2, bf16: 2, f8e4m3: 1, f8e5m2: 1, i8: 1, u8: 1, i16: 2, u16: 2, i32: 4,
    u32: 4, i64: 8, u64: 8};
const NPY_KINDS = {f2: "f16", f4: "f32", f8: "f64", i1: "i8", i2: "i16", i4: "i32", i8: "i64", u1: "u8", u2: "u16",
    u4: "u32", u8: "u64", b1: "u8"};
const SAFETENSORS_KINDS = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64", F8_E4M3: "f8e4m3", F8_E5M2: "f8e5m2",
    I8: "i8", U8: "u8", I16: "i16", U16: "u16", I32: "i32", U32: "u32", I64: "i64", U64: "u64", BOOL: "u8"};

function tensor(name, dtype, shape, bytes) {
    let count = 1;
    for (const d of shape) {
        if (!Number.isSafeInteger(d) || d < 0)
            throw new TypeError(`${name}: a dimension is not a count`);
        count *= d;
    }
    if (count * PICI_WIDTHS[dtype] !== bytes.length)
        throw new TypeError(`${name}: ${bytes.length} bytes are not a shape of [${shape}] of ${dtype}`);
    return {name, dtype, shape, count, bytes};
}

function npyTensors(name, bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const wide = bytes[6] >= 2;
    const begin = wide ? 12 : 10;
    if (bytes.length < begin)
        throw new TypeError(`${name}: the header is cut short`);
    const end = begin + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
    if (end > bytes.length)
        throw new TypeError(`${name}: the header is cut short`);
    const header = new TextDecoder("latin1").decode(bytes.subarray(begin, end));
    const descr = /'descr'\s*:\s*'([<>|=])(\w+)'/.exec(header);
    const shape = /'shape'\s*:\s*\(([\d, ]*)\)/.exec(header);
    if (!descr || !shape)
        throw new TypeError(`${name}: the header has no simple dtype and shape`);
    const dtype = NPY_KINDS[descr[2]];
    if (!dtype || (descr[1] === ">" && PICI_WIDTHS[dtype] > 1))
        throw new TypeError(`${name}: elements of ${descr[1]}${descr[2]} are not supported on this page`);
    const dimensions = shape[1].split(",").map(s => s.trim()).filter(s => s).map(Number);
    return [tensor(name, dtype, dimensions, bytes.subarray(end))];
}

function safetensorsTensors(name, bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const length = bytes.length < 8 ? Infinity : Number(view.getBigUint64(0, true));
    if (8 + length > bytes.length)
        throw new TypeError(`${name}: the header is cut short`);
    let header;
    try {
        header = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(bytes.subarray(8, 8 + length)));
    } catch (e) {
        throw new TypeError(`${name}: the header is not JSON`);
    }
    const found = [];
    for (const [key, value] of Object.entries(header)) {
        if (key === "__metadata__")
            continue;
        if (!value || typeof value !== "object")
            throw new TypeError(`${key} is not a tensor`);
        const dtype = SAFETENSORS_KINDS[value.dtype];
        if (!dtype)
            throw new TypeError(`${key}: elements of ${value.dtype} are not supported on this page`);
        const [first, last] = Array.isArray(value.data_offsets) ? value.data_offsets : [];
        const inside = Number.isSafeInteger(first) && Number.isSafeInteger(last) && 0 <= first && first <= last;
        if (!inside || 8 + length + last > bytes.length || !Array.isArray(value.shape))
            throw new TypeError(`${key}: its elements are not in the file`);
        found.push(tensor(key, dtype, value.shape, bytes.subarray(8 + length + first, 8 + length + last)));
    }
    return found;
}

function tensorsOf(name, bytes) {
    if (bytes.length >= 10 && bytes[0] === 0x93 && String.fromCharCode(...bytes.subarray(1, 6)) === "NUMPY")
        return npyTensors(name, bytes);
    if (bytes.length > 8 && bytes[8] === 0x7b)
        return safetensorsTensors(name, bytes);
    throw new TypeError(`${name}: neither a .npy nor a .safetensors file`);
}
