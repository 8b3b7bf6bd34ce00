package drivertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// release is a version that a Fake can be.
type release struct {
	name   string
	number int // what hipRuntimeGetVersion says, cuDriverGetVersion
}

// releases: the number of 5.2 is Debian's; of the others the build is left out.
var releases = []release{
	{"5.2", 50221153},
	{"6.2", 60200000},
	{"7.1", 70100000},
	{"7.2.1", 70200000}, // the number does not have the release's last part
	{"7.14", 71400000},
}

// Versions lists what Options.Version can be.
func Versions() []string {
	var list []string
	for _, r := range releases {
		list = append(list, r.name)
	}
	return list
}

// cudaRelease is the version of a fake CUDA driver.
var cudaRelease = release{"13.0", 13000}

func releaseOf(kind driver.Kind, version string) (release, error) {
	if kind == driver.CUDA {
		if version != "" && version != cudaRelease.name {
			return release{}, fmt.Errorf("no fake CUDA %q: have %s", version, cudaRelease.name)
		}
		return cudaRelease, nil
	}
	if version == "" {
		version = "6.2"
	}
	at := slices.IndexFunc(releases, func(r release) bool { return r.name == version })
	if at < 0 {
		return release{}, fmt.Errorf("no fake HIP %q: have %s", version, strings.Join(Versions(), ", "))
	}
	return releases[at], nil
}

// has tells whether this release has what came with another: 7.14 has 6.0's.
func (r release) has(since string) bool {
	if since == "" {
		return true
	}
	return slices.Compare(numbers(r.name), numbers(since)) >= 0
}

func numbers(version string) []int {
	var list []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		list = append(list, n)
	}
	return list
}
