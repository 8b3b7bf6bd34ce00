// Package ignored holds findings that comments silence, or fail to.
package ignored

func silent(m map[string]int) (names []string) {
	for k := range m {
		names = append(names, k) //kilnvet:ignore maporder the caller sorts
	}
	for k := range m {
		//kilnvet:ignore maporder the caller sorts
		names = append(names, k)
	}
	return names
}

func loud(m map[string]int) (names []string) {
	for k := range m {
		names = append(names, k) /* want `names is appended to` `gives no reason` */ //kilnvet:ignore maporder
	}
	for k := range m {
		names = append(names, k) /* want `names is appended to` */ //kilnvet:ignore walkmutate the wrong analyzer
	}
	for k := range m {
		//kilnvet:ignore maporder too far away // want `kilnvet:ignore maporder silences nothing: remove it`

		names = append(names, k) // want `names is appended to`
	}
	return names
}

//kilnvet:ignore // want `names no analyzer`
//kilnvet:ignore maporde a reason // want `names "maporde", which is no analyzer; want //kilnvet:ignore ANALYZER REASON, ANALYZER one of maporder, walkmutate`
//kilnvet:ignored is another word
