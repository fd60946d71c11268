// Parts of views: a titled section, a list of facts, and a table.

import type { ComponentChildren } from "preact";

export function Panel(props: { title: string; class?: string; children: ComponentChildren }) {
  return (
    <section aria-label={props.title} class={`panel ${props.class ?? ""}`}>
      <h2>{props.title}</h2>
      {props.children}
    </section>
  );
}

/** Names and values; a fact without a value is omitted. */
export function Facts({ of }: { of: [name: string, value: ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(
        ([name, value]) =>
          value != null && (
            <div key={name} class="fact">
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** A table in a box that scrolls. Columns whose name starts with `#` are numbers. */
export function Table({ label, columns, rows }: { label: string; columns: string[]; rows: ComponentChildren[][] }) {
  const classOf = (column: string) => (column.startsWith("#") ? "number" : undefined);
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} class={classOf(column)}>
                {column.replace("#", "")}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, index) => (
                <td key={index} class={classOf(columns[index]!)}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
