//! The depth of the queue, and the batches in which requests go and come back.

use super::Draft;

impl Draft {
    pub(super) fn queue(&mut self) {
        let queue = &mut self.job.queue;
        let depth = queue.depth;
        queue.batch = if queue.batch == 0 { depth } else { queue.batch.min(depth) };
        queue.low = self.low.filter(|low| *low > 0).map_or(depth, |low| low.min(depth));
        queue.batch_complete_min = queue.batch_complete_min.min(depth);
        queue.batch_complete_max = queue.batch_complete_max.max(queue.batch_complete_min);
    }
}
