package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `kiln compiles, inspects and runs DeepSeek-V4 models.

usage: kiln COMMAND [flags]

commands:
%s
kiln COMMAND --help says more. Standard output is the result, standard error all
else. Exit codes: 0 ok, 1 failed, 2 usage, 3 refused (understood, and not
supported or not allowed), 4 a check did not hold.
`

// showHelp prints the help of a command, or of kiln for the root.
func showHelp(e *env, c *cobra.Command) error {
	var b strings.Builder
	if c.Hidden {
		return unknownCommand(c.Name())
	}
	if !c.HasParent() {
		if err := c.ValidateArgs(c.Flags().Args()); err != nil {
			return err
		}
		for _, c := range commands {
			fmt.Fprintf(&b, "  %-9s %s\n", c.name, c.short)
		}
		_, err := fmt.Fprintf(e.stdout, rootHelp, b.String())
		return err
	}
	fmt.Fprintf(&b, "usage: kiln %s", c.Use)
	defs := flagsOf(c.Name())
	if len(defs) > 0 {
		b.WriteString(" [flags]")
	}
	fmt.Fprintf(&b, "\n\n%s\n", c.Long)
	if len(defs) > 0 {
		b.WriteString("\nflags, and the environment variables that stand in for them:\n")
	}
	for _, d := range defs {
		b.WriteString("  " + d.usage() + "\n      " + d.doc + "\n")
	}
	_, err := fmt.Fprint(e.stdout, b.String())
	return err
}

// usage is the flag's line in the help text, without its doc.
func (d flagDef) usage() string {
	notes := []string{d.env()}
	if d.required {
		notes = append(notes, "required")
	}
	switch v := d.def.(type) {
	case string:
		if v != "" {
			notes = append(notes, "default "+v)
		}
	case int:
		if v != 0 {
			notes = append(notes, fmt.Sprintf("default %d", v))
		}
	}
	name := "--" + d.name
	if d.short != "" {
		name = "-" + d.short + ", " + name
	}
	if d.arg != "" {
		name += " " + d.arg
	}
	return fmt.Sprintf("%-26s (%s)", name, strings.Join(notes, ", "))
}
