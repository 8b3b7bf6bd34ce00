package fix

func bare(m map[string]int) (names []string) {
	for k := range m {
		names = append(names, k) // want `names is appended to`
	}
	for k := range m {
		names = append(names, k) // want `names is appended to`
	}
	return names
}
