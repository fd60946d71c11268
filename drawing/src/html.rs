//! A picture as an HTML page without references to other files.

use crate::drawing::Drawing;
use crate::svg::{escaped, svg};

const STYLE: &str = "body{margin:0;font:14px/1.5 Arial,Helvetica,'Liberation Sans',sans-serif;color:#1f2328;background:#fff}\
main,ul{margin:16px}main{overflow:auto}h1{font-size:18px;margin:16px}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}";

/// Returns a page with the picture, and a list of notes below it.
pub fn html(title: &str, drawing: &Drawing, notes: &[String]) -> String {
    let title = escaped(title);
    let mut list = String::new();
    for note in notes {
        list.extend(["<li>", &escaped(note), "</li>\n"]);
    }
    if !notes.is_empty() {
        list = format!("<ul>\n{list}</ul>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<main>\n{}</main>\n{list}</body>\n</html>\n",
        svg(drawing)
    )
}
