"""The book of theorems: a page a claim, whose demonstration is measured and drawn when it is built."""
