"""The drawing kit: SVG of figures, ticks and digits, colors, frames."""
