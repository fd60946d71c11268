// Sizes as short texts.

/** Bytes in binary units: `512 B`, `1.5 KiB`. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [size, unit] = [value, 0];
  while (size >= 1024 && unit < units.length - 1) [size, unit] = [size / 1024, unit + 1];
  return `${unit === 0 ? Math.round(size) : Number(size.toPrecision(3))} ${units[unit]}`;
}
