"""Where cost surfaces come from: published profiles, rooflines of hardware, calibrated shapes."""
