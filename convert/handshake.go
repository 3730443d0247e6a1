package convert

func fromHandshake(c *conversion) { notYet(c) }
