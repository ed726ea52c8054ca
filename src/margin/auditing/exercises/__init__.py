"""Exercises, one a chapter of the book: a function that a student writes is put to the chapter's theorem."""
