package convert

func fromHelixMCP(c *conversion) { notYet(c) }
