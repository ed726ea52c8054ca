"""A U-Net that is told a time."""
