package hip

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

// Release is a release of ROCm: 7.2.1.
type Release struct{ Major, Minor, Patch int }

// anyPatch is the Patch of a release of which only major and minor are known: the
// HIP runtime has a build number in its place.
const anyPatch = -1

func (r Release) String() string {
	if r.Patch == anyPatch {
		return fmt.Sprintf("%d.%d.?", r.Major, r.Minor)
	}
	return fmt.Sprintf("%d.%d.%d", r.Major, r.Minor, r.Patch)
}

// compare orders releases; where one patch is not known it does not count.
func (r Release) compare(other Release) int {
	order := cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor))
	if order != 0 || r.Patch == anyPatch || other.Patch == anyPatch {
		return order
	}
	return cmp.Compare(r.Patch, other.Patch)
}

// ReleaseOf is the release of ROCm by what Library.Version returns and by the file
// in which an installation has its name (.info/version below ROCm's folder). With
// no file, "", the last part of the release stays unknown. If the file does not go
// with the library, the library's number counts, and note says so: there may be
// two installations, or a release whose HIP is numbered in another way.
func ReleaseOf(version int, infoFile string) (r Release, note string, err error) {
	r = Release{version / 10_000_000, version / 100_000 % 100, anyPatch}
	if infoFile == "" {
		return r, "", nil
	}
	text, err := os.ReadFile(infoFile)
	if err != nil {
		return r, "", fmt.Errorf("release of ROCm: %w", err)
	}
	line := strings.TrimSpace(string(text)) // 7.2.1-43
	name, _, _ := strings.Cut(line, "-")
	var named Release
	var rest string
	if n, _ := fmt.Sscanf(name+" .", "%d.%d.%d %s", &named.Major, &named.Minor, &named.Patch, &rest); n != 4 || rest != "." {
		return r, "", fmt.Errorf("release of ROCm: %s holds %.40q, want MAJOR.MINOR.PATCH-BUILD", infoFile, line)
	}
	if named.compare(r) != 0 {
		return r, fmt.Sprintf("%s says ROCm %s, the library that was loaded is HIP %s, which counts; if there are two installations, name the library of one",
			infoFile, named, VersionText(version)), nil
	}
	return named, "", nil
}
