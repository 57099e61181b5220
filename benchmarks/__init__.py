"""How fast and how large: ratios measured side by side in one run, never asserted in a test."""
