package convert

func fromAX(c *conversion) { notYet(c) }
