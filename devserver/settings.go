package devserver

import (
	"errors"
	"fmt"
	"maps"

	"go.temporal.io/server/chasm/lib/activity"
	"go.temporal.io/server/common/dynamicconfig"
	"gopkg.in/yaml.v3"
)

// processorPollRPS replaces Temporal's 20 polls per second and queue. A poll that is over the limit waits for the next
// tick, up to 50 ms, on every hop of a workflow: signal to activity takes 34 ms with 20 and 6 ms with 1000.
const processorPollRPS = 1000

// defaultSettings is the dynamic configuration of a development server. The numbers are ints on purpose: Temporal ignores
// a float64 in the place of an int.
func defaultSettings() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		// Speed: see processorPollRPS.
		dynamicconfig.TransferProcessorMaxPollRPS.Key(): processorPollRPS,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():    processorPollRPS,

		// One partition: with more, a task may wait in a partition that no poller asks at the moment, and one SQLite
		// connection serialises their writes anyway.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

		// Workers that leave their pollers at the defaults scale them: fixed ones have stalled new workflows for seconds.
		dynamicconfig.PollerAutoscalingAutoEnroll.Key(): true,

		// A worker that stops takes its open polls back, so that no task is handed to it and lost until a time-out.
		dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(): true,

		// Features that are off by default.
		dynamicconfig.MatchingEnableFairness.Key():                               true,
		dynamicconfig.WorkflowPauseEnabled.Key():                                 true,
		dynamicconfig.FrontendEnableBatchOperationsForStandaloneActivities.Key(): true,
		activity.Enabled.Key():                                                   true,
		activity.EnableCallbacks.Key():                                           true,
		activity.EnableStandaloneActivityOperatorCommands.Key():                  true,

		// A development server talks to nobody outside.
		dynamicconfig.EnableServerVersionCheck.Key(): false,
	}
}

// dynamicSettings is defaultSettings with the user's settings laid over them.
func dynamicSettings(overrides map[string]any) (dynamicconfig.StaticClient, error) {
	parsed, err := parseSettings(overrides)
	if err != nil {
		return nil, err
	}

	settings := defaultSettings()
	maps.Copy(settings, parsed)

	return settings, nil
}

// parseSettings turns settings by name into Temporal's form. It goes through Temporal's own file format, whose loader is
// the only public place that knows the names and types of all settings.
func parseSettings(settings map[string]any) (dynamicconfig.StaticClient, error) {
	if len(settings) == 0 {
		return dynamicconfig.StaticClient{}, nil
	}

	type entry struct {
		Value any `yaml:"value"`
	}

	file := make(map[string][]entry, len(settings))
	for key, value := range settings {
		file[key] = []entry{{Value: value}}
	}

	contents, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write as YAML: %w", err)
	}

	loaded := dynamicconfig.LoadYamlFile(contents)
	if err := errors.Join(append(loaded.Errors, loaded.Warnings...)...); err != nil {
		return nil, err
	}

	client := make(dynamicconfig.StaticClient, len(loaded.Map))
	for key, values := range loaded.Map {
		client[key] = values
	}

	return client, nil
}
