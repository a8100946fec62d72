package devserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// pollInterval is the pause between two questions whether a service is up.
	pollInterval = 10 * time.Millisecond

	// probeTimeout bounds one such question.
	probeTimeout = 5 * time.Second
)

// waitReady returns when every namespace can run workflows and has our search attributes.
func waitReady(ctx context.Context, cfg Config, frontend string) error {
	connection, err := grpc.NewClient(frontend, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", frontend, err)
	}

	defer func() { _ = connection.Close() }()

	for _, namespace := range cfg.Namespaces {
		if err := waitUntil(ctx, func(ctx context.Context) error {
			return probe(ctx, workflowservice.NewWorkflowServiceClient(connection), namespace)
		}); err != nil {
			return fmt.Errorf("namespace %q: %w", namespace, err)
		}

		if err := ensureAttributes(ctx, operatorservice.NewOperatorServiceClient(connection), namespace); err != nil {
			return fmt.Errorf("namespace %q: %w", namespace, err)
		}
	}

	return nil
}

// probe asks for a workflow that does not exist. The answer needs the frontend, the namespace and the history service
// with its shard, which is all that a start of a workflow needs.
func probe(ctx context.Context, service workflowservice.WorkflowServiceClient, namespace string) error {
	_, err := service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: "rowfold-devserver-probe"},
	})

	var (
		notFound    *serviceerror.NotFound
		noNamespace *serviceerror.NamespaceNotFound
	)

	err = serviceerror.FromStatus(status.Convert(err))
	if err == nil || (errors.As(err, &notFound) && !errors.As(err, &noNamespace)) {
		return nil
	}

	return fmt.Errorf("probe the namespace: %w", err)
}

// ensureAttributes registers the search attributes that a namespace lacks, because the database comes from somewhere
// else or from an older version.
func ensureAttributes(ctx context.Context, service operatorservice.OperatorServiceClient, namespace string) error {
	present, err := service.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("list search attributes: %w", err)
	}

	missing := SearchAttributes()
	for name := range present.GetCustomAttributes() {
		delete(missing, name)
	}

	if len(missing) == 0 {
		return nil
	}

	if _, err := service.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace:        namespace,
		SearchAttributes: missing,
	}); err != nil {
		return fmt.Errorf("add search attributes: %w", err)
	}

	return nil
}

// waitUntil calls probe until it succeeds or ctx is over, and then returns the last failure too.
func waitUntil(ctx context.Context, probe func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()

	for {
		probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := probe(probeCtx)

		cancel()

		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
