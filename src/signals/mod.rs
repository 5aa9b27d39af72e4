pub struct Sources;
pub struct S1;
impl Sources {
    pub fn get(&self, _: &str) -> Option<std::sync::Arc<S1>> {
        None
    }
    pub fn names(&self) -> Vec<String> {
        vec![]
    }
}
impl S1 {
    pub async fn read(
        &self,
        _: &crate::core::signal::PrometheusSignal,
        _: jiff::Timestamp,
        _: bool,
    ) -> crate::core::signal::Reading {
        unimplemented!()
    }
}
