package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/schema"
)

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long:  "Print the version of this program, the revision of its source, and the version of the tables that it needs.",
		Example: `  postroom version
  postroom version --json | jq -r .version`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, _ := debug.ReadBuildInfo() // nil in a binary without modules
			about, err := aboutBuild(build)
			if err != nil {
				return err
			}
			if asJSON {
				return output.JSON(cmd.OutOrStdout(), about)
			}
			rows := [][]string{{"postroom", about.Version}}
			if about.Revision != "" {
				rows = append(rows, []string{"revision", about.Revision})
			}
			return output.Table(cmd.OutOrStdout(), append(rows,
				[]string{"schema", strconv.Itoa(about.Schema)},
				[]string{"go", about.Go},
				[]string{"platform", about.Platform},
			))
		},
	}
	command.AddJSON(cmd, &asJSON)
	return cmd
}

// The type about is the output of "version".
type about struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Schema   int    `json:"schema"` // the number of the newest migration
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func aboutBuild(build *debug.BuildInfo) (about, error) {
	steps, err := schema.Migrations("")
	if err != nil {
		return about{}, err
	}
	a := about{Version: "(devel)", Schema: len(steps), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build == nil {
		return a, nil
	}
	a.Version = cmp.Or(build.Main.Version, a.Version)
	modified := ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			a.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", with changes"
		}
	}
	if a.Revision != "" {
		a.Revision += modified
	}
	return a, nil
}
