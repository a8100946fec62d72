// Command rowfold-dev runs what a developer of read models needs on one machine, beginning with a real Temporal server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rowfold-dev: "+err.Error())

		return 1
	}

	return 0
}

// newRootCommand assembles the command from its subcommands, a file each.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "rowfold-dev",
		Short:         "Run rowfold's development servers",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}

	root.AddCommand(newServerCommand(), newDemoCommand(), newDevCommand())

	return root
}
