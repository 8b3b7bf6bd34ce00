// Package passes holds Kiln's graph passes: one table (table.go), one file per
// pass, its tests beside it as text.
package passes
