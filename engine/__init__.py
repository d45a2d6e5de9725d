"""What runs on the device: stages that gather work across requests, the process that steps them, and recognisers."""
