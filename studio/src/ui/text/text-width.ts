// Width of short texts in the font of notes and labels (600 11px system-ui).

const pen = document.createElement("canvas").getContext("2d");
const widths = new Map<string, number>();

export function widthOf(text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    if (pen) pen.font = "600 11px system-ui, sans-serif";
    width = pen?.measureText(text).width ?? text.length * 6.5;
    if (widths.size > 5000) widths.clear();
    widths.set(text, width);
  }
  return width;
}
