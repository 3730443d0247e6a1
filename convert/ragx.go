package convert

func fromRagx(c *conversion) { notYet(c) }
