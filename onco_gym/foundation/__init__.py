"""Code that every room uses: units, intervals, atomic files, progress, parallel work and HTML pages."""
