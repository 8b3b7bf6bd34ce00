package parallel

import (
	"fmt"
	"testing"
)

func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 100} {
		done := make([]int, n)
		err := Each(n, func(i int) error {
			done[i]++
			if i == 7 || i == 3 {
				return fmt.Errorf("call %d", i)
			}
			return nil
		})
		for i, times := range done {
			if times != 1 {
				t.Errorf("of %d, call %d was made %d times", n, i, times)
			}
		}
		if want := n > 3; (err != nil) != want || want && err.Error() != "call 3\ncall 7" {
			t.Errorf("%d calls: error %v", n, err)
		}
		if err := First(n, func(i int) error { return fmt.Errorf("call %d", i) }); (err != nil) != (n > 0) || err != nil && err.Error() != "call 0" {
			t.Errorf("%d calls: first error %v", n, err)
		}
	}
}
