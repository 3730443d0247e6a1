package plan

// Previous returns the bytes that [Params.Canonical] gave of this request before: with the placement it was sent to (null where that names
// no QOS or constraint), the artifact_id of every input, and a null stdout. A run made then is found by the identity it has, so a submit
// looks that identity up before the present one. Nothing is stored in this form any more.
func (p Params) Previous(placed Placement) ([]byte, error) {
	d, err := Of(p.wire())
	if err != nil {
		return nil, err
	}
	doc := d.Value.(map[string]any)
	body, docker := doc["docker"].(map[string]any)
	if !docker {
		body = doc["slurm"].(map[string]any)
		placed.Site = nil // there was one
		at, err := Of(placed)
		if err != nil {
			return nil, err
		}
		body["placement"] = at.Value
	}
	command := body["execution"].(map[string]any)["command"].(map[string]any)
	if _, named := command["stdout"]; !named {
		command["stdout"] = nil
	}
	return Marshal(doc)
}
