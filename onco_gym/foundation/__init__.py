"""What every room stands on: units, intervals, atomic files, progress, spreading work over processes, HTML pages."""
