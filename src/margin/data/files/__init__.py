"""Files as they may be: broken, hostile, larger than memory; read, and replaced whole."""
