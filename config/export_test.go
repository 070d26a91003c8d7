package config

// Unplaced is c without what it knows of the file, for comparisons.
func (c *Config) Unplaced() *Config {
	d := *c
	d.places = nil
	return &d
}
