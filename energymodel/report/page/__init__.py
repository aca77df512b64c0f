"""Reports as pages: one HTML file for each answer, complete without network and without script."""
