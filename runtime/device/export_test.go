package device

// WeightPart is the memory of a bound weight's data (0) or scales (1).
func (m *Model) WeightPart(i, part int) Memory { return m.weights[i].parts[part] }
